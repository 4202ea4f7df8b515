import { useAction } from "@/api/hooks";
import { client } from "@/api/client";

/** What a press does, said before it: shown over the buttons on every screen. */
export const PAUSES = "No new run starts, and runs under way finish. Files are still taken in and queued.";
export const RESUMES = "Runs start again, the oldest queued input first. Failure counts are reset.";
export const RETRIES = "Runs the failed epoch once more, on the same input. If it fails, the stage stops again.";

interface StageOf {
  dataflow: string;
  stage: string;
}

/** Return what pauses, resumes and retries dataflows and stages; each says what it did. */
export function useDataflowActions() {
  const pause = useAction(
    (name: string) => client.POST("/api/v1/dataflows/{name}/pause", { params: { path: { name } } }),
    { done: (_, name) => `${name} is paused: no new run starts. Runs under way will finish.` },
  );
  const resume = useAction(
    (name: string) => client.POST("/api/v1/dataflows/{name}/resume", { params: { path: { name } } }),
    { done: (_, name) => `${name} continues.` },
  );
  const resumeStage = useAction(
    ({ dataflow, stage }: StageOf) =>
      client.POST("/api/v1/dataflows/{name}/stages/{stage}/resume", {
        params: { path: { name: dataflow, stage } },
      }),
    { done: (_, { stage }) => `${stage} continues.` },
  );
  const retry = useAction(
    ({ dataflow, stage }: StageOf) =>
      client.POST("/api/v1/dataflows/{name}/stages/{stage}/retry", {
        params: { path: { name: dataflow, stage } },
      }),
    { done: (_, { stage }) => `${stage} is retried at once.` },
  );
  return { pause, resume, resumeStage, retry };
}
