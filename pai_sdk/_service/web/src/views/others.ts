// The views besides the list and those of curves, in one script.
export { Admin } from "./admin.tsx";
export { Hparams } from "./hparams.tsx";
export { Media } from "./media.tsx";
export { Pipelines } from "./pipelines.tsx";
export { Queue } from "./queue.tsx";
export { Schedules } from "./schedules.tsx";
export { Study } from "./study.tsx";
