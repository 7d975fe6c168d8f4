//! A sender that does not keep its channel open.
//!
//! Owns: a reference to the channel, not counted among the senders.

use std::fmt;

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::Channel;

use super::Sender;

/// A way back to a [`Sender`], as long as there is one. It does not keep the channel from closing when the last
/// sender goes. Made by [`Sender::downgrade`].
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct WeakSender<T, K: Sharing = Shared> {
    channel: K::Ref<Channel<T, K>>,
}

impl<T, K: Sharing> WeakSender<T, K> {
    pub(super) fn new(channel: &K::Ref<Channel<T, K>>) -> Self {
        Self {
            channel: channel.clone(),
        }
    }

    /// A sender, unless the channel is closed.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T, K>> {
        self.channel.try_add_sender().then(|| Sender {
            channel: self.channel.clone(),
        })
    }
}

impl<T, K: Sharing> Clone for WeakSender<T, K> {
    fn clone(&self) -> Self {
        Self::new(&self.channel)
    }
}

impl<T, K: Sharing> fmt::Debug for WeakSender<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSender").finish_non_exhaustive()
    }
}
