//! The part of JSON Schema 2020-12 that `docs/summary.schema.json` uses. Another keyword is a failure here, so
//! that nothing in the schema goes unchecked.

use serde_json::Value;

/// Where the value breaks the schema, and how; empty if it is valid.
pub(crate) fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Check { root: schema, faults: &mut faults }.value(schema, value, "");
    faults
}

struct Check<'a> {
    root: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
            let holds = match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" => true,
                "$ref" => {
                    let place = wanted.as_str().and_then(|r| r.strip_prefix('#')).expect("a local reference");
                    let target = self.root.pointer(place).unwrap_or_else(|| panic!("no {place}"));
                    self.value(target, value, at);
                    true
                }
                "allOf" => {
                    wanted.as_array().expect("schemas").iter().for_each(|part| self.value(part, value, at));
                    true
                }
                "type" => is_of_type(wanted, value),
                "const" => wanted == value,
                "enum" => wanted.as_array().expect("values").contains(value),
                "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().expect("a number")),
                "minLength" => value
                    .as_str()
                    .is_none_or(|s| s.chars().count() as u64 >= wanted.as_u64().expect("a length")),
                "pattern" => value.as_str().is_none_or(|text| starts_like_a_date(wanted, text)),
                "required" => wanted.as_array().expect("names").iter().all(|name| {
                    value.as_object().is_none_or(|object| object.contains_key(name.as_str().expect("a name")))
                }),
                "items" => {
                    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(wanted, item, &format!("{at}/{place}"));
                    }
                    true
                }
                "properties" => {
                    for (name, part) in wanted.as_object().expect("schemas by name") {
                        value
                            .get(name)
                            .into_iter()
                            .for_each(|v| self.value(part, v, &format!("{at}/{name}")));
                    }
                    true
                }
                "additionalProperties" => {
                    assert!(schema.get("properties").is_none(), "beside `properties` not known here");
                    for (name, v) in value.as_object().into_iter().flatten() {
                        self.value(wanted, v, &format!("{at}/{name}"));
                    }
                    true
                }
                other => panic!("the schema uses `{other}`, which is not checked here"),
            };
            if !holds {
                self.faults.push(format!("{at}: {keyword} {wanted} does not hold of {value}"));
            }
        }
    }
}

fn is_of_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect("a type's name") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type `{other}`"),
    };
    wanted.as_array().map_or_else(|| is(wanted), |names| names.iter().any(is))
}

/// The one pattern of the schema, by hand: a regular expression engine is not worth a dependency.
fn starts_like_a_date(pattern: &Value, text: &str) -> bool {
    let known = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}";
    assert_eq!(pattern.as_str(), Some(known), "another pattern is not known here");
    let shape = "dddd-dd-ddTdd:dd:dd";
    text.len() >= shape.len()
        && shape.chars().zip(text.chars()).all(|(s, t)| if s == 'd' { t.is_ascii_digit() } else { s == t })
}
