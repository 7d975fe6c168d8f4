//! A sender that does not keep its channel open.
//!
//! Owns: a reference to the channel, not counted among the senders.

use std::fmt;
use std::sync::Arc;

use sinew_core::sync::Channel;

use super::Sender;

/// A way back to a [`Sender`], as long as there is one. It does not keep the channel from closing when the last
/// sender goes. Made by [`Sender::downgrade`].
pub struct WeakSender<T> {
    channel: Arc<Channel<T>>,
}

impl<T> WeakSender<T> {
    pub(super) fn new(channel: &Arc<Channel<T>>) -> Self {
        Self {
            channel: channel.clone(),
        }
    }

    /// A sender, unless the channel is closed.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.channel.try_add_sender().then(|| Sender {
            channel: self.channel.clone(),
        })
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self::new(&self.channel)
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSender").finish_non_exhaustive()
    }
}
