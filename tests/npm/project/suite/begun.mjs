/** A program that begins a play, and ends without ending it. */

import { cassette } from "mrtr-cassette";

try {
  const tape = await cassette({ file: process.env["RECORDED"] ?? "", mode: "none" });
  console.log(tape.cassette);
} catch (error) {
  console.log(String(error));
}
