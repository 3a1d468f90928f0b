//! The document of `/openapi.json`, and a check of responses against it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

pub(crate) const TEXT: &str = include_str!("../../src/server/openapi.json");

pub(crate) static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).unwrap());

/// The client routes, without those of the admin listener.
pub(crate) fn paths() -> BTreeMap<&'static str, &'static Value> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let own = paths.iter().filter(|(_, item)| item.get("servers").is_none());
    own.map(|(path, item)| (path.as_str(), item)).collect()
}

/// The target of a `$ref`.
pub(crate) fn resolved(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => DOCUMENT.pointer(reference.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(expected, part)| {
            expected == part || expected.starts_with('{') && !part.is_empty()
        })
}

/// The operation of a request line, if the document has it.
pub(crate) fn operation(line: &str) -> Option<&'static Value> {
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let path = target.split('?').next()?;
    let (_, item) = paths().into_iter().find(|(template, _)| fits(template, path))?;
    item.get(method.to_ascii_lowercase())
}

/// How the head of a response violates the document, if it does.
pub(crate) fn complaint(request: &[u8], head: &str) -> Option<String> {
    let request = String::from_utf8_lossy(request);
    let line = request.lines().next()?;
    // The document cannot describe another protocol, an unknown method or an unknown route.
    let operation = operation(line).filter(|_| line.ends_with(" HTTP/1.1"))?;
    let status = head.split(' ').nth(1)?;
    let Some(response) = operation["responses"].get(status) else {
        return Some(format!("`{line}`: openapi.json has no {status} for it"));
    };
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "))?;
    let media = content_type.split(';').next()?.trim();
    let has_media = resolved(response)["content"].get(media).is_some();
    (!has_media).then(|| format!("`{line}`: openapi.json has no {media} for its {status}"))
}
