export { CassetteError } from "./errors.js";
export {
  cassette,
  type CassetteOptions,
  type Miss,
  type Mode,
  type Outcome,
  type Play,
  type PlayOptions,
  type Report,
  type Unplayed,
} from "./play.js";
