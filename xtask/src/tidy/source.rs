//! Telling code from comments and literals, as far as the rules need it.
//!
//! Not a parser: it knows how comments, strings and characters begin and end, and nothing else.

/// Returns the text with comments and the contents of literals replaced by blanks. Lines stay where
/// they are.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped_until(&chars, at);
        if end > at {
            code.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        } else {
            code.push(chars[at]);
            at += 1;
        }
    }
    code
}

/// The identifiers and keywords of a code-only text, each with its line (from 1).
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        line.split(|c: char| !is_word(c))
            .filter(|word| !word.is_empty())
            .map(move |word| (index + 1, word))
    })
}

/// Whether a text has `word` in it, standing alone.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !is_word(c)).any(|found| found == word)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the comment or literal that begins at `at` ends, or `at` if none begins there.
fn skipped_until(chars: &[char], at: usize) -> usize {
    let after_word = at > 0 && is_word(chars[at - 1]);
    match chars[at..] {
        ['/', '/', ..] => find(chars, at, |c| c == '\n'),
        ['/', '*', ..] => block_comment(chars, at),
        ['"', ..] => string(chars, at),
        ['\'', '\\', ..] => find(chars, at + 3, |c| c == '\'') + 1,
        ['\'', _, '\'', ..] => at + 3,
        ['b' | 'c', '"', ..] if !after_word => string(chars, at + 1),
        ['b' | 'c', 'r', ..] if !after_word => raw_string(chars, at + 2).unwrap_or(at),
        ['r', ..] if !after_word => raw_string(chars, at + 1).unwrap_or(at),
        _ => at,
    }
    .min(chars.len())
}

/// The first position from `at` on whose character satisfies `wanted`, or the end.
fn find(chars: &[char], at: usize, wanted: impl Fn(char) -> bool) -> usize {
    (at..chars.len())
        .find(|&index| wanted(chars[index]))
        .unwrap_or(chars.len())
}

/// The end of a block comment; they nest.
fn block_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => {
                depth += 1;
                at += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// The end of a string whose opening quote is at `at`.
fn string(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The end of a raw string whose hashes or quote begin at `at`, if it is one.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let open = find(chars, at, |c| c != '#');
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let hashes = open - at;
    let closes = |end: usize| {
        chars[end] == '"' && chars[end + 1..].iter().take_while(|&&c| c == '#').count() >= hashes
    };
    let end = (open + 1..chars.len()).find(|&end| closes(end));
    Some(end.map_or(chars.len(), |end| end + 1 + hashes))
}
