//! Coroutines by themselves.
pub(crate) fn is_inside() -> bool {
    false
}
