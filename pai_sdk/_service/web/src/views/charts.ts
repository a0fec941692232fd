// Views of curves, and that of one job. They are one script: each in its own costs more, compressed, than it saves.
export { Compare } from "./compare.tsx";
export { Curves } from "./curves.tsx";
export { Job } from "./job.tsx";
