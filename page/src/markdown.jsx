// A subset of Markdown as DOM nodes: paragraphs, headings, lists, quotes, code, tables, emphasis, links. Other syntax is
// shown as text. Links open in a new tab; images are not fetched but shown as links.

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|(?<![\w*])\*([^*\s](?:[^*]*[^*\s])?)\*(?!\*)|(?<![\w_])_([^_\s](?:[^_]*[^_\s])?)_(?![\w_])|~~(.+?)~~|!?\[([^\]]*)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"])/s;
const MAX_DEPTH = 6;
const MAX_INLINE = 5_000; // characters of a paragraph; a longer one is shown as plain text, because unclosed marks take quadratic time

function safeHref(href) {
  try {
    const { protocol } = new URL(href);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

function link(href, shown) {
  const safe = safeHref(href);
  if (!safe) return shown;
  return (
    <a href={safe} target="_blank" rel="noopener noreferrer nofollow">
      {shown}
    </a>
  );
}

export function inline(text, depth = 0) {
  const nodes = [];
  let rest = text;
  while (rest && depth < MAX_DEPTH && text.length <= MAX_INLINE) {
    const found = INLINE.exec(rest);
    if (!found) break;
    if (found.index > 0) nodes.push(rest.slice(0, found.index));
    const [whole, , code, strong, strong2, em, em2, del, label, href, url] = found;
    if (code !== undefined) nodes.push(<code>{code}</code>);
    else if (strong ?? strong2) nodes.push(<strong>{inline(strong ?? strong2, depth + 1)}</strong>);
    else if (em ?? em2) nodes.push(<em>{inline(em ?? em2, depth + 1)}</em>);
    else if (del) nodes.push(<del>{inline(del, depth + 1)}</del>);
    else if (href) nodes.push(link(href, label || href));
    else if (url) nodes.push(link(url, url));
    else nodes.push(whole);
    rest = rest.slice(found.index + whole.length);
  }
  if (rest) nodes.push(rest);
  return nodes;
}

const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;
const FENCE = /^\s*(```+|~~~+)\s*(\S*)/;
const ROW = /^\s*\|.*\|\s*$/;
const RULE = /^\s*\|?[\s:|-]+\|?\s*$/;

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function blocks(lines, depth) {
  const out = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fence = FENCE.exec(line);
    if (!line.trim()) {
      at += 1;
    } else if (fence) {
      const from = at + 1;
      do at += 1;
      while (at < lines.length && !lines[at].trim().startsWith(fence[1]));
      out.push(
        <pre tabIndex={0}>
          <code>{lines.slice(from, at).join("\n")}</code>
        </pre>,
      );
      at += 1;
    } else if (/^#{1,6}\s/.test(line)) {
      out.push(<p class="heading">{inline(line.replace(/^#+\s+/, ""))}</p>);
      at += 1;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(<hr />);
      at += 1;
    } else if (line.startsWith(">") && depth < MAX_DEPTH) {
      const from = at;
      while (at < lines.length && lines[at].startsWith(">")) at += 1;
      out.push(<blockquote>{blocks(lines.slice(from, at).map((quoted) => quoted.replace(/^>\s?/, "")), depth + 1)}</blockquote>);
    } else if (ROW.test(line) && RULE.test(lines[at + 1] ?? "") && lines[at + 1]?.includes("-")) {
      const head = cells(line);
      const rows = [];
      for (at += 2; at < lines.length && ROW.test(lines[at]); at += 1) rows.push(cells(lines[at]));
      out.push(
        <div class="table" tabIndex={0} role="group" aria-label="Table">
          <table>
            <thead>
              <tr>{head.map((cell) => <th scope="col">{inline(cell)}</th>)}</tr>
            </thead>
            <tbody>{rows.map((row) => <tr>{row.map((cell) => <td>{inline(cell)}</td>)}</tr>)}</tbody>
          </table>
        </div>,
      );
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const [, indent, mark] = ITEM.exec(line);
      const items = [];
      for (let item; at < lines.length; at += 1) {
        const found = ITEM.exec(lines[at]);
        if (found && found[1].length <= indent.length + 1) items.push((item = [found[3]]));
        else if (lines[at].trim() && /^\s+/.test(lines[at])) item.push(lines[at].replace(/^\s{1,4}/, ""));
        else break;
      }
      const List = /\d/.test(mark) ? "ol" : "ul";
      out.push(<List>{items.map((item) => <li>{item.length > 1 ? blocks(item, depth + 1) : inline(item[0])}</li>)}</List>);
    } else {
      const from = at;
      do at += 1;
      while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !ITEM.test(lines[at]) && !/^(#{1,6}\s|>)/.test(lines[at]));
      const words = [];
      for (const [n, part] of lines.slice(from, at).entries()) words.push(...(n > 0 ? [<br />] : []), ...inline(part));
      out.push(<p>{words}</p>);
    }
  }
  return out;
}

export function Markdown({ text }) {
  return <div class="markdown">{blocks(text.split("\n"), 0)}</div>;
}
