/** The names of tests' cassettes, the same on every system. */

import { createHash } from "node:crypto";
import { basename, dirname, extname, join, relative, sep } from "node:path";

/** Characters of a name's readable part; file systems take 255 bytes. */
const LONGEST_NAME = 120;

/**
 * Return a file name for a title, without `.json`.
 *
 * A hash follows where the readable part does not tell titles apart on every file system:
 * other characters than ASCII letters, digits, `_`, `-` and `.`, capitals, or a long title.
 */
export function fileName(title: string): string {
  const readable = title.replace(/[^A-Za-z0-9_.-]+/g, "-").slice(0, LONGEST_NAME);
  if (readable === title && title === title.toLowerCase()) return title;
  const digest = createHash("sha256").update(title, "utf8").digest("hex");
  return `${readable}-${digest.slice(0, 10)}`;
}

/** Return the path of a test's own cassette: `cassettes/TEST FILE/TITLE.json` beside its file. */
export function cassettePath(testFile: string, title: string): string {
  const stem = basename(testFile, extname(testFile));
  const isPlain = !/[^A-Za-z0-9_.-]/.test(stem);
  const folder = isPlain ? stem : fileName(stem.normalize("NFC"));
  return join(dirname(testFile), "cassettes", folder, `${fileName(title)}.json`);
}

/**
 * Return the name by which the server of a folder finds a file: relative to it, with slashes.
 *
 * A path outside of the folder is returned whole, for the server to refuse it.
 */
export function nameWithin(folder: string, path: string): string {
  const name = relative(folder, path).split(sep).join("/");
  if (name.startsWith("../")) return path;
  return path.endsWith("/") ? `${name}/` : name;
}
