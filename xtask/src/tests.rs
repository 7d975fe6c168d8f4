//! The command line of xtask.

use super::*;

fn parsed(args: &[&str]) -> Result<Request, String> {
    parse(args.iter().map(|&arg| arg.to_owned()))
}

#[test]
fn ci_is_every_marked_kind() {
    let Ok(Request::Run {
        kinds,
        keep_going: true,
        rest,
    }) = parsed(&["ci", "--keep-going"])
    else {
        panic!("ci runs something");
    };
    for name in [
        "fmt", "tidy", "clippy", "doc", "test", "one-cpu", "loom", "valgrind", "notes", "asan",
        "tour",
    ] {
        assert!(kinds.contains(&name), "{name} is part of ci");
    }
    assert!(
        !kinds.contains(&"bench"),
        "figures from a shared machine decide nothing"
    );
    assert!(rest.is_empty());
}

#[test]
fn an_unknown_kind_is_an_error_that_names_it() {
    assert!(
        parsed(&["tidy", "speling"])
            .unwrap_err()
            .contains("speling")
    );
}

#[test]
fn nothing_asked_prints_the_usage() {
    assert_eq!(parsed(&[]), Ok(Request::Help));
    for kind in KINDS {
        assert!(usage().contains(kind.name));
    }
}

#[test]
fn arguments_go_to_one_kind_only() {
    let Ok(Request::Run { rest, .. }) = parsed(&["bench", "--", "--quick"]) else {
        panic!("one kind takes arguments");
    };
    assert_eq!(rest, ["--quick"]);
    assert!(parsed(&["bench", "tour", "--", "--quick"]).is_err());
}
