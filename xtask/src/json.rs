//! As much JSON as the checks need: parsed strictly, numbers kept as text.

use std::str::CharIndices;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    /// `null`, `true`, `false` or a number.
    Plain(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses one value with nothing behind it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        parser.skip_space();
        if parser.at < text.len() { Err(parser.wrong("the end")) } else { Ok(value) }
    }

    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Plain(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// A number, a truth value or `null`, as it stood there.
    pub(crate) fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}

/// Deeper nesting than any summary has is refused, not recursed into.
const DEPTH_MAX: usize = 64;

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, expected: &str) -> String {
        let found: String = self.rest().chars().take(20).collect();
        format!("byte {}: expected {expected}, found {found:?}", self.at)
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\n', '\r', '\t']).len();
    }

    /// Takes the character if it comes next, after space.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_space();
        let is_next = self.rest().starts_with(wanted);
        self.at += if is_next { wanted.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.take(wanted) { Ok(()) } else { Err(self.wrong(&wanted.to_string())) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("less nesting"));
        }
        self.skip_space();
        match self.rest().chars().next() {
            Some('{') => self.sequence('{', '}', |parser| parser.member(depth)).map(Json::Object),
            Some('[') => self.sequence('[', ']', |parser| parser.value(depth + 1)).map(Json::List),
            Some('"') => self.string().map(Json::Text),
            _ => self.plain(),
        }
    }

    fn sequence<T>(
        &mut self,
        open: char,
        close: char,
        element: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut elements = Vec::new();
        self.expect(open)?;
        if self.take(close) {
            return Ok(elements);
        }
        loop {
            elements.push(element(self)?);
            if self.take(close) {
                return Ok(elements);
            }
            self.expect(',')?;
        }
    }

    fn member(&mut self, depth: usize) -> Result<(String, Json), String> {
        self.skip_space();
        let name = self.string()?;
        self.expect(':')?;
        Ok((name, self.value(depth + 1)?))
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut text = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += offset + 1;
                    return Ok(text);
                }
                '\\' => match escaped(&mut characters) {
                    Some(meant) => text.push(meant),
                    None => break,
                },
                '\0'..='\x1F' => break,
                _ => text.push(character),
            }
        }
        Err(self.wrong("a text with its closing quote"))
    }

    fn plain(&mut self) -> Result<Json, String> {
        let end = self.rest().find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(self.rest().len());
        let word = &self.rest()[..end];
        let is_word = matches!(word, "null" | "true" | "false");
        let is_number = word.starts_with(|first: char| first == '-' || first.is_ascii_digit())
            && word.parse::<f64>().is_ok_and(f64::is_finite);
        if !is_word && !is_number {
            return Err(self.wrong("a value"));
        }
        self.at += end;
        Ok(Json::Plain(word.to_owned()))
    }
}

/// What an escape means, behind its backslash (RFC 8259, section 7). Half a surrogate pair means nothing here.
fn escaped(characters: &mut CharIndices<'_>) -> Option<char> {
    Some(match characters.next()?.1 {
        same @ ('"' | '\\' | '/') => same,
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => {
            let digits: String = characters.take(4).map(|(_, digit)| digit).collect();
            let is_whole = digits.len() == 4 && digits.chars().all(|digit| digit.is_ascii_hexdigit());
            return u32::from_str_radix(&digits, 16).ok().filter(|_| is_whole).and_then(char::from_u32);
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let json = Json::parse(r#" { "a": [1, -2.5e3, null], "b": {"c": "d \" e"}, "f": [] } "#).unwrap();
        assert_eq!(json.get("a").and_then(Json::list).map(<[_]>::len), Some(3));
        assert_eq!(json.get("b").and_then(|b| b.get("c")).and_then(Json::text), Some(r#"d " e"#));
        assert_eq!(json.get("f").and_then(Json::list), Some(&[][..]));
        assert!(json.get("g").is_none());
    }

    #[test]
    fn escapes_are_what_they_mean() {
        let json = Json::parse(r#""a\"\\\n\u00e9""#).unwrap();
        assert_eq!(json.text(), Some("a\"\\\n\u{e9}"));
        assert!(
            [r#""\x""#, r#""\u12""#, r#""\u+123""#, r#""\ud800""#, r#""\"#]
                .iter()
                .all(|text| Json::parse(text).is_err())
        );
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "{\"a\" 1}", "[1,]", "{} {}", "NaN", "inf", "\"a", "nul", "[1 2]"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(1_000)).is_err());
    }
}
