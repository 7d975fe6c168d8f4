//! Coroutines without a scheduler: resumed by hand, with values both ways.

use sinew::coroutine::{Coroutine, Generator, Step, Suspender, Yielder, anchor};

use super::stage::same;
use super::{Check, Stage};

/// How many disks the tower has.
const DISKS: u32 = 4;

/// A move of a disk, from one peg to another.
type Move = (char, char);

/// A generator out of a recursion, and a coroutine that answers.
pub(super) fn resuming(stage: &mut Stage<'_>) -> Check {
    let moves: Vec<Move> = anchor(|a| {
        let tower = Generator::new(a, |yielder: &Yielder<'_, Move>| {
            solve(yielder, DISKS, ['A', 'B', 'C']);
        });
        tower.collect()
    });
    let first: Vec<String> = moves
        .iter()
        .take(5)
        .map(|(a, b)| format!("{a}{b}"))
        .collect();
    stage.say(format!(
        "a recursion, {DISKS} deep, is an iterator of {} moves of a tower: {} ...",
        moves.len(),
        first.join(" ")
    ));
    check_moves(&moves)?;

    let answers = anchor(|a| {
        let mut average = Coroutine::new(a, |suspender: &Suspender<f64, f64>, first: f64| {
            let (mut sum, mut count) = (first, 1_u32);
            while count < 4 {
                match suspender.suspend(sum / f64::from(count)) {
                    Ok(next) => sum += next,
                    Err(_cancelled) => break,
                }
                count += 1;
            }
            format!("{count} numbers, {sum} in all")
        });
        [10.0, 20.0, 60.0, 10.0].map(|number| average.resume(number).ok())
    });
    stage.say(
        "another takes numbers and gives their average so far: 10, 20, 60 in; 10, 15, 30 out; then \
         it returns a text",
    );
    let suspended = |average| Some(Step::Suspended(average));
    let done = Some(Step::Done("4 numbers, 100 in all".to_owned()));
    same(
        "the averages",
        answers,
        [suspended(10.0), suspended(15.0), suspended(30.0), done],
    )
}

/// Moves `disks` disks from the first peg to the last, and yields each move from the depth where it is found.
fn solve(yielder: &Yielder<'_, Move>, disks: u32, [from, over, to]: [char; 3]) {
    if disks == 0 {
        return;
    }
    solve(yielder, disks - 1, [from, to, over]);
    if yielder.suspend((from, to)).is_ok() {
        solve(yielder, disks - 1, [over, from, to]);
    }
}

/// Plays the moves: no disk lies on a smaller one, and the tower ends on the last peg.
fn check_moves(moves: &[Move]) -> Check {
    same("how many moves", moves.len(), (1 << DISKS) - 1)?;
    let mut pegs: [Vec<u32>; 3] = [(1..=DISKS).rev().collect(), Vec::new(), Vec::new()];
    let peg = |letter: char| letter as usize - 'A' as usize;
    for &(from, to) in moves {
        let disk = pegs[peg(from)].pop();
        let below = pegs[peg(to)].last().copied();
        same("a disk to move", disk.is_some(), true)?;
        same(
            "a disk on a smaller one",
            below.is_some_and(|below| Some(below) < disk),
            false,
        )?;
        pegs[peg(to)].extend(disk);
    }
    same("disks on the last peg", pegs[2].len(), DISKS as usize)
}
