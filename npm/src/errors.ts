/** Something about a cassette or its server that a test has to fail with. */
export class CassetteError extends Error {
  override name = "CassetteError";
}
