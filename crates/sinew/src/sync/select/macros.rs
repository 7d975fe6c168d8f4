//! The `select!` macro.
//!
//! Owns: the syntax. Each arm is read token by token up to its last call, because `rx.recv()` must not be called but waited
//! for together with the others; what is left is a list of arms with their patterns and bodies. The arms are bound one inside of the
//! other, so that the same name means each of them in turn (hygiene keeps them apart), and the bodies are expanded in place:
//! `?`, `break` and `return` in them act on the code around the macro.

use super::super::channel::SendError;
use crate::error::WaitError;

/// The outcome of the arm that has taken effect.
#[doc(hidden)]
pub fn taken<T>(outcome: Option<T>) -> T {
    match outcome {
        Some(outcome) => outcome,
        None => unreachable!("the arm that took effect has an outcome"),
    }
}

/// The outcome of a send whose value is the macro's.
#[doc(hidden)]
pub fn sent<T>(outcome: Result<(), WaitError>, value: &mut Option<T>) -> Result<(), SendError<T>> {
    match (outcome, value.take()) {
        (Err(reason), Some(value)) => Err(SendError { value, reason }),
        _ => Ok(()),
    }
}

/// Waits for several things at once; exactly one of them happens, and its body runs.
///
/// The arms are, each with a pattern that cannot fail for what it gives:
///
/// | arm | what happens | what the pattern is given |
/// |---|---|---|
/// | `v = rx.recv()` | a value is received, or there will be none | `Result<T, WaitError>` |
/// | `r = tx.send(x)` | `x` is sent, or cannot be any more | `Result<(), SendError<T>>` |
/// | `r = tx.send_from(&mut slot)` | the same with the value in `slot: Option<T>`; see below | `Result<(), WaitError>` |
/// | `r = event.wait()` | an event, a wait group, a cancel token, a `SharedFuture`, the end of a coroutine | `Result<(), WaitError>` |
/// | `r = handle.join()` | the coroutine has ended; `handle`, a variable or a field, is consumed only then | `Result<T, JoinError>` |
/// | `_ = after(duration)`, `_ = at(instant)`, also without the `_ =` | the time is over, counted from here | `()` |
/// | `r = ready(&fd, interest)` | the descriptor is ready | `io::Result<()>` |
/// | `v = future(fut)` | the std future `fut: Unpin` is ready, say a `pin!(…)` or a `&mut` of one; polled here | its output |
/// | `r = arm(expression)` | what any other [arm](crate::sync::select::Arm) waits for | what its `take` returns |
/// | `default` | nothing of the above could happen at once | |
///
/// The value is `Ok` of the body's, or why no arm happened: `Cancelled`, or `State` where nothing may wait. With a
/// `default` nothing is waited for, and the value is the body's itself.
///
/// The expressions in the arms are evaluated once each, in the order of the source (of a send, the value first), before anything
/// is tried; what is temporary in them lives until the body has run. The bodies are part of the code around: `?`, `break` and `return` in them act on that.
///
/// What did not happen has consumed nothing. The value of a `tx.send(x)` that did not happen is dropped with the
/// macro's other values: where it is to be kept, `tx.send_from(&mut slot)` leaves it in its slot.
///
/// Of several arms that could happen at once each has its turn; the order in the source means nothing. Arms are made and waited
/// for anew each time; that allocates nothing, and nothing of it is left afterwards. At most some 20 arms fit into
/// the compiler's default `recursion_limit`; for more there is the [`Selector`](crate::sync::select::Selector).
///
/// # Suspends
///
/// Until one arm can happen; with a `default` never.
///
/// # Cancellation
///
/// Ends the wait with `Cancelled`; no arm has happened. An arm that can happen at once wins.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sinew::{WaitError, select};
/// use sinew::event::Event;
/// use sinew::sync::channel::bounded;
///
/// # fn main() -> Result<(), WaitError> {
/// sinew::run(|| {
///     let (numbers, receiver) = bounded::<u32>(4);
///     let quit = Event::manual();
///     let worker = sinew::spawn_local(move || (1..=3).for_each(|n| numbers.send(n).unwrap()));
///     let mut total = 0;
///     loop {
///         select! {
///             number = receiver.recv() => match number {
///                 Ok(number) => total += number,
///                 Err(_) => break,
///             },
///             _ = quit.wait() => break,
///             _ = after(Duration::from_secs(10)) => return Err(WaitError::Timeout),
///         }?;
///     }
///     assert_eq!(total, 6);
///     let is_over = select! {
///         r = worker.join() => r.is_ok(),
///         default => false,
///     };
///     assert!(is_over);
///     Ok(())
/// })
/// # }
/// ```
#[macro_export]
macro_rules! select {
    // Each arm: a pattern, what is waited for, a body.
    (@arms $arms:tt $default:tt) => {
        $crate::select!(@bind [0] $arms {} $default)
    };
    (@arms $arms:tt {} default => $($rest:tt)+) => {
        $crate::select!(@default $arms $($rest)+)
    };
    (@arms $arms:tt $default:tt default => $($rest:tt)*) => {
        ::core::compile_error!("a select has one default at most")
    };
    // What gives nothing needs no pattern.
    (@arms $arms:tt $default:tt after($($time:tt)*) => $($rest:tt)+) => {
        $crate::select!(@what $arms $default {_} {} after($($time)*) => $($rest)+)
    };
    (@arms $arms:tt $default:tt at($($time:tt)*) => $($rest:tt)+) => {
        $crate::select!(@what $arms $default {_} {} at($($time)*) => $($rest)+)
    };
    (@arms $arms:tt $default:tt $pattern:pat = $($rest:tt)+) => {
        $crate::select!(@what $arms $default {$pattern} {} $($rest)+)
    };

    // The body of a default.
    (@default $arms:tt $body:block , $($rest:tt)*) => { $crate::select!(@arms $arms {$body} $($rest)*) };
    (@default $arms:tt $body:block $($rest:tt)*) => { $crate::select!(@arms $arms {$body} $($rest)*) };
    (@default $arms:tt $body:expr , $($rest:tt)*) => { $crate::select!(@arms $arms {$body} $($rest)*) };
    (@default $arms:tt $body:expr) => { $crate::select!(@arms $arms {$body}) };

    // What is waited for: tokens are collected until the call that ends them.
    (@what $arms:tt $default:tt $pattern:tt {} after($time:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {$crate::sync::select::after($time)}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {} at($time:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {$crate::sync::select::at($time)}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {} ready($fd:expr, $interest:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default
            {$pattern arm {$crate::sync::select::ready($fd, $interest)}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {} future($future:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {$crate::sync::select::future($future)}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {} arm($arm:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {$arm}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .recv() => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {($($on)+).recv_arm()}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .wait() => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {($($on)+).wait_arm()}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .changed() => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {($($on)+).changed_arm()}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .send($value:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern send {($($on)+)} {$value}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .send_from($slot:expr) => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern arm {($($on)+).send_arm($slot)}} $($rest)+)
    };
    // Only what can be named twice: the handle is consumed when the arm has happened.
    (@what $arms:tt $default:tt $pattern:tt {$first:ident $(. $field:tt)*} .join() => $($rest:tt)+) => {
        $crate::select!(@body $arms $default {$pattern join {$first $(. $field)*}} $($rest)+)
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)+} .join() => $($rest:tt)+) => {
        ::core::compile_error!(
            "a join in a select is of a variable or a field, because the handle is consumed only if it happens"
        )
    };
    (@what $arms:tt $default:tt $pattern:tt $on:tt => $($rest:tt)*) => {
        ::core::compile_error!(
            "a select waits for `.recv()`, `.send(value)`, `.send_from(slot)`, `.wait()`, `.changed()`, `.join()`, \
             `after(duration)`, `at(instant)`, `ready(fd, interest)`, `future(future)` or `arm(arm)`"
        )
    };
    (@what $arms:tt $default:tt $pattern:tt {$($on:tt)*} $next:tt $($rest:tt)*) => {
        $crate::select!(@what $arms $default $pattern {$($on)* $next} $($rest)*)
    };

    // The body of an arm.
    (@body {$($arms:tt)*} $default:tt {$($arm:tt)*} $body:block , $($rest:tt)*) => {
        $crate::select!(@arms {$($arms)* {$($arm)* {$body}}} $default $($rest)*)
    };
    (@body {$($arms:tt)*} $default:tt {$($arm:tt)*} $body:block $($rest:tt)*) => {
        $crate::select!(@arms {$($arms)* {$($arm)* {$body}}} $default $($rest)*)
    };
    (@body {$($arms:tt)*} $default:tt {$($arm:tt)*} $body:expr , $($rest:tt)*) => {
        $crate::select!(@arms {$($arms)* {$($arm)* {$body}}} $default $($rest)*)
    };
    (@body {$($arms:tt)*} $default:tt {$($arm:tt)*} $body:expr) => {
        $crate::select!(@arms {$($arms)* {$($arm)* {$body}}} $default)
    };

    // Binds the arms. What lies in their expressions lives as long as they do.
    (@bind [$($index:tt)+] {{{$pattern:pat} arm {$arm:expr} $body:tt} $($arms:tt)*} {$($bound:tt)*} $default:tt) => {
        match $arm {
            arm => $crate::select!(@bind [$($index)+ + 1] {$($arms)*} {$($bound)*
                {arm {$($index)+} {$pattern} {$crate::sync::select::taken(arm.take())} $body}
            } $default),
        }
    };
    (@bind [$($index:tt)+] {{{$pattern:pat} send {$on:expr} {$value:expr} $body:tt} $($arms:tt)*} {$($bound:tt)*}
        $default:tt) => {
        match ::core::option::Option::Some($value) {
            mut value => match $on.send_arm(&mut value) {
                arm => $crate::select!(@bind [$($index)+ + 1] {$($arms)*} {$($bound)*
                    {arm {$($index)+} {$pattern}
                        {$crate::sync::select::sent($crate::sync::select::taken(arm.take()), &mut value)} $body}
                } $default),
            },
        }
    };
    (@bind [$($index:tt)+] {{{$pattern:pat} join {$($handle:tt)+} $body:tt} $($arms:tt)*} {$($bound:tt)*} $default:tt) => {
        match $($handle)+.wait_arm() {
            arm => $crate::select!(@bind [$($index)+ + 1] {$($arms)*} {$($bound)*
                {arm {$($index)+} {$pattern} {$($handle)+.join()} $body}
            } $default),
        }
    };
    (@bind $end:tt {} {$({$arm:ident {$($index:tt)+} {$pattern:pat} $outcome:tt $body:tt})*} {}) => {
        match $crate::sync::select::wait_for(&[$(&$arm as &dyn $crate::sync::select::Arm),*]) {
            // Every body may leave by itself, and then there is no value to wrap.
            #[allow(unreachable_code)]
            ::core::result::Result::Ok(chosen) => ::core::result::Result::Ok(match chosen {
                $(chosen if chosen == $($index)+ => {
                    let $pattern = $outcome;
                    $body
                })*
                _ => ::core::unreachable!("there is no such arm"),
            }),
            ::core::result::Result::Err(error) => ::core::result::Result::<_, $crate::WaitError>::Err(error),
        }
    };
    (@bind $end:tt {} {$({$arm:ident {$($index:tt)+} {$pattern:pat} $outcome:tt $body:tt})*} {$default:expr}) => {
        match $crate::sync::select::try_for(&[$(&$arm as &dyn $crate::sync::select::Arm),*]) {
            $(::core::option::Option::Some(chosen) if chosen == $($index)+ => {
                let $pattern = $outcome;
                $body
            })*
            ::core::option::Option::Some(_) => ::core::unreachable!("there is no such arm"),
            ::core::option::Option::None => $default,
        }
    };

    // Whatever does not fit.
    (@ $($rest:tt)*) => {
        ::core::compile_error!(
            "the arms of a select are `pattern = what is waited for => body`, `after(duration) => body`, `at(instant) => body` \
             and `default => body`, with commas between them"
        )
    };

    ($($tokens:tt)+) => {
        $crate::select!(@arms {} {} $($tokens)+)
    };
}
