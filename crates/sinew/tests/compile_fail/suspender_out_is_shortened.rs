//! A suspender that hands out long-lived values does not pass for one that hands out short-lived ones.
use sinew::coroutine::Suspender;

fn shorten<'s, 'short>(s: &'s Suspender<(), &'static str>) -> &'s Suspender<(), &'short str> {
    s
}

fn main() {
    let _ = shorten;
}
