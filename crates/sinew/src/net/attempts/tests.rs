//! The order of the attempts. The attempts themselves: `crates/sinew/tests/net_connect.rs`.

use super::in_turn;

#[test]
fn versions_take_turns_from_the_first_address_on() {
    let order = |texts: &[&str]| -> Vec<String> {
        let addresses = texts.iter().map(|text| text.parse().unwrap()).collect();
        let order = in_turn(addresses).into_iter();
        order.map(|address| address.to_string()).collect()
    };
    assert_eq!(order(&[]), [""; 0]);
    assert_eq!(order(&["1.1.1.1:1"]), ["1.1.1.1:1"]);
    let mixed = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"];
    let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"];
    assert_eq!(order(&mixed), expected);
    assert_eq!(
        order(&["1.1.1.1:1", "1.1.1.2:1", "[::1]:1"]),
        ["1.1.1.1:1", "[::1]:1", "1.1.1.2:1"]
    );
}
