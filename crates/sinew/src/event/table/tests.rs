//! What two threads would have to be caught in the middle of.

use super::{EventId, EventTable, TableWaitError};
use crate::scheduler::waiting::Waiting;

// contract: E8
#[test]
fn a_wait_that_found_its_event_before_the_removal_finds_it_missing() {
    let table = EventTable::<u8>::new(1);
    let id = table.create(None, |_, _| ()).unwrap();
    let line = table.entry(id).unwrap().line.clone();
    table.remove(id).unwrap();
    let waiting = Waiting::new(Some(0)).unwrap();
    assert_eq!(line.wait(id, &waiting), Err(TableWaitError::Missing(id)));
}

// contract: E8
#[test]
fn a_trigger_that_found_its_event_before_the_removal_wakes_nobody() {
    let table = EventTable::<u8>::new(1);
    let id = table.create(None, |_, _| ()).unwrap();
    let line = table.entry(id).unwrap().line.clone();
    table.remove(id).unwrap();
    assert_eq!(table.create(Some(EventId(0)), |_, _| ()).unwrap(), id);
    assert_eq!(line.wake_with(&std::sync::Arc::new(1)), 0);
}
