//! Input and output on descriptors.
pub(crate) mod source;
