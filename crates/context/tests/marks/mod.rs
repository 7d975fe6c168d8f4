//! Looks for resume points in the disassembly of the test that includes this.
//!
//! A resume point is an address that code takes, by `lea …(%rip)`, of the instruction behind an indirect jump and its padding: nothing
//! falls through to it, so it is there to be jumped to. (The compiler's own jump tables hold such addresses in data.)

use std::collections::HashMap;
use std::process::Command;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Resume points that begin with `endbr64`.
    pub(crate) marked: usize,
    /// Those that do not, with the name of the function that they are in.
    pub(crate) unmarked: Vec<String>,
    /// The first instruction of the function where new stacks begin.
    pub(crate) start: Option<String>,
}

/// One instruction of the disassembly.
struct Instruction {
    address: u64,
    text: String,
}

/// Disassembles the running executable; `None` where there is no objdump.
pub(crate) fn find() -> Option<Found> {
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", "--demangle"])
        .arg(std::env::current_exe().unwrap())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: no objdump: {error}");
            return None;
        }
    };
    assert!(output.status.success());
    Some(find_in(&String::from_utf8_lossy(&output.stdout)))
}

/// The same in this disassembly.
pub(crate) fn find_in(disassembly: &str) -> Found {
    let mut found = Found::default();
    let mut function = String::new();
    let mut body = Vec::new();
    for line in disassembly.lines().chain([""]) {
        if let Some((_, name)) = line.split_once(" <").filter(|_| line.ends_with(">:")) {
            function = name.trim_end_matches(">:").to_owned();
        } else if let Some((address, text)) = line.split_once(":\t") {
            let address = u64::from_str_radix(address.trim(), 16).unwrap_or_default();
            let text = text.trim().to_owned();
            body.push(Instruction { address, text });
        } else if line.is_empty() {
            look_at(&function, &body, &mut found);
            body.clear();
        }
    }
    found
}

fn look_at(function: &str, body: &[Instruction], found: &mut Found) {
    if function.contains("sinew_context::arch::") && function.ends_with("::start") {
        found.start = body.first().map(|first| first.text.clone());
    }
    let places: HashMap<u64, usize> = body
        .iter()
        .enumerate()
        .map(|(place, instruction)| (instruction.address, place))
        .collect();
    let mut points: Vec<usize> = body
        .iter()
        .filter_map(|instruction| taken_address(&instruction.text))
        .filter_map(|address| places.get(&address).copied())
        .filter(|&place| {
            let mut before = body[..place].iter().rev();
            let before = before.find(|instruction| !is_padding(&instruction.text));
            before.is_some_and(|jump| is_indirect_jump(&jump.text))
        })
        .collect();
    points.sort_unstable();
    points.dedup();
    for place in points {
        if body[place].text.starts_with("endbr64") {
            found.marked += 1;
        } else {
            found.unmarked.push(function.to_owned());
        }
    }
}

/// The address that a `lea` of an address relative to the instruction pointer takes, as objdump notes it behind.
fn taken_address(text: &str) -> Option<u64> {
    let note = text.strip_prefix("lea")?.split_once("(%rip)")?.1;
    let address = note.split_once("# ")?.1.split(' ').next()?;
    u64::from_str_radix(address, 16).ok()
}

fn is_indirect_jump(text: &str) -> bool {
    text.strip_prefix("jmp")
        .is_some_and(|rest| rest.trim_start().starts_with('*'))
}

/// What an assembler fills the way to an aligned address with.
fn is_padding(text: &str) -> bool {
    ["nop", "xchg   %ax,%ax", "int3"]
        .iter()
        .any(|padding| text.contains(padding))
}
