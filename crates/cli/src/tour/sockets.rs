//! An echo over a pair of sockets.

use std::io::{Read, Write};
use std::net::Shutdown;

use sinew::net::UnixStream;
use sinew::spawn_local;

use super::figures::{bytes, grouped};
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// The bytes of a line.
const LINE_BYTES: usize = 64;

/// One sends, another returns what it gets, a third checks what comes back.
pub(super) fn echo(stage: &mut Stage<'_>) -> Check {
    let count: usize = stage.choose(1_000, 100_000);
    let (echoed, checked) = sinew::run(|| {
        let (near, mut far) = UnixStream::pair()?;
        let echo = spawn_local(move || sinew::io::copy(&mut far.try_clone()?, &mut far));
        let mut sending = near.try_clone()?;
        let sender = spawn_local(move || {
            for number in 0..count {
                sending.write_all(&line(number))?;
            }
            sending.shutdown(Shutdown::Write)
        });
        let checked = check_lines(near)?;
        sender.join()??;
        Ok::<_, Failure>((echo.join()??, checked))
    })?;
    stage.say(format!(
        "{} lines, {} in all, went through the echo and came back whole and in order",
        grouped(checked as u64),
        bytes(echoed as usize)
    ));
    same("lines that came back", checked, count)?;
    same(
        "bytes by the echo's count",
        echoed,
        (count * LINE_BYTES) as u64,
    )
}

/// Reads to the end of the stream.
fn check_lines(mut stream: UnixStream) -> Result<usize, Failure> {
    let mut checked = 0;
    let mut input = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            break;
        }
        input.extend_from_slice(&piece[..count]);
        let mut lines = input.chunks_exact(LINE_BYTES);
        for seen in &mut lines {
            ensure(seen == line(checked), || {
                format!("line {checked} came back changed")
            })?;
            checked += 1;
        }
        input = lines.remainder().to_vec();
    }
    same("bytes behind the last line", input.len(), 0)?;
    Ok(checked)
}

fn line(number: usize) -> [u8; LINE_BYTES] {
    let mut line = [b'.'; LINE_BYTES];
    line[..8].copy_from_slice(&(number as u64).to_be_bytes());
    line
}
