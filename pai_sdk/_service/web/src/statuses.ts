// Statuses of jobs by what they mean.
export const FAILED: ReadonlySet<string> = new Set(["Failed", "InitializeFailed", "CreateFailed"]);
export const ENDED: ReadonlySet<string> = new Set([...FAILED, "Succeed", "Terminated"]);
