//! Whether a text is JSON.

/// The rest after one value.
pub(crate) fn check(text: &str) -> Result<&str, String> {
    let text = text.trim_start();
    match text.as_bytes().first() {
        Some(b'{') => many(&text[1..], '}', |text| {
            let rest = string(text.trim_start())?;
            check(rest.strip_prefix(':').ok_or("no colon")?)
        }),
        Some(b'[') => many(&text[1..], ']', check),
        Some(b'"') => string(text),
        _ => {
            let end = text.find([',', '}', ']']).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            if matches!(word, "null" | "true" | "false") || word.parse::<u128>().is_ok() {
                Ok(rest)
            } else {
                Err(format!("no value: {word}"))
            }
        }
    }
}

fn many(
    mut text: &str,
    end: char,
    item: impl Fn(&str) -> Result<&str, String>,
) -> Result<&str, String> {
    if let Some(rest) = text.strip_prefix(end) {
        return Ok(rest);
    }
    loop {
        text = item(text)?;
        if let Some(rest) = text.strip_prefix(end) {
            return Ok(rest);
        }
        text = text.strip_prefix(',').ok_or("no comma")?;
    }
}

fn string(text: &str) -> Result<&str, String> {
    let mut characters = text.strip_prefix('"').ok_or("no string")?.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok(&text[at + 2..]),
            '\\' => match characters.next() {
                Some((_, 'u')) => {
                    let mut digits = characters.by_ref().take(4);
                    if !digits.all(|(_, digit)| digit.is_ascii_hexdigit()) {
                        return Err("no digits".into());
                    }
                }
                Some((_, '"' | '\\' | 'n' | 'r' | 't')) => {}
                _ => return Err("no escape".into()),
            },
            '\0'..='\x1f' => return Err("a control character".into()),
            _ => {}
        }
    }
    Err("no end".into())
}
