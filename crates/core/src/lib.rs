//! Pure algorithms of the sinew runtime.
