//! Names and literals to addresses.

mod io_rig;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

use io_rig::watchdog;
use sinew::net::{ToSocketAddrs, lookup_host, lookup_host_deadline, lookup_host_timeout};
use sinew::{run, spawn_local};

fn all<A: ToSocketAddrs>(host: A) -> Vec<SocketAddr> {
    lookup_host(host).unwrap().collect()
}

fn resolver_threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("sinew-resolver"))
        .count()
}

// contract: I7
// One test: it counts the process's threads.
#[test]
fn literals_take_no_thread_and_names_do() {
    let _watchdog = watchdog();
    let v4 = SocketAddr::from(([127, 0, 0, 1], 80));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
    run(|| {
        assert_eq!(all("127.0.0.1:80"), [v4]);
        assert_eq!(all(String::from("127.0.0.1:80")), [v4]);
        assert_eq!(all("[::1]:80"), [v6]);
        assert_eq!(all(("127.0.0.1", 80)), [v4]);
        assert_eq!(all(("::1", 80)), [v6]);
        assert_eq!(all((String::from("::1"), 80)), [v6]);
        assert_eq!(all(v4), [v4]);
        assert_eq!(all(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80)), [v4]);
        assert_eq!(all(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0)), [v6]);
        assert_eq!(all((IpAddr::from([127, 0, 0, 1]), 80)), [v4]);
        assert_eq!(all((Ipv4Addr::LOCALHOST, 80)), [v4]);
        assert_eq!(all((Ipv6Addr::LOCALHOST, 80)), [v6]);
        assert_eq!(all(&[v4, v6][..]), [v4, v6]);
        for wrong in ["127.0.0.1", "localhost:http", "localhost:65536", ""] {
            let error = lookup_host(wrong).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}");
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
        assert_eq!(resolver_threads(), 0);
        let lookup = spawn_local(|| all("localhost:80"));
        let found = lookup.join().unwrap();
        // It stays for a while, in case that there is more to do.
        assert_eq!(resolver_threads(), 1);
        assert!(found.contains(&v4) || found.contains(&v6), "{found:?}");
        let error = lookup_host("no such name:80").err().unwrap();
        assert!(error.to_string().contains("no such name"), "{error}");
    });
    // With limits that are not reached, and one that is over for what needs no asking.
    let limit = Duration::from_secs(60);
    run(|| {
        assert_eq!(
            lookup_host_timeout(v4, Duration::ZERO)
                .unwrap()
                .collect::<Vec<_>>(),
            [v4]
        );
        assert!(lookup_host_timeout("localhost:80", limit).unwrap().count() > 0);
        let deadline = sinew::time::now() + limit;
        assert!(
            lookup_host_deadline("localhost:80", deadline)
                .unwrap()
                .count()
                > 0
        );
    });
    assert!(lookup_host_timeout("localhost:80", limit).unwrap().count() > 0);
    // On a plain thread it is asked for right here.
    let found = all(("localhost", 80));
    assert!(found.contains(&v4) || found.contains(&v6), "{found:?}");
}
