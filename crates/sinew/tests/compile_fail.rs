//! What the types promise not to compile. Each case stands in `compile_fail/`, the compiler's words beside it.

// contract: C1, C16
#[test]
fn what_must_not_compile_does_not() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
