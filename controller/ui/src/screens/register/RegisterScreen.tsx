import { Page } from "@/components/Page";
import { useUrlState } from "@/hooks/urlState";
import { NextSteps } from "@/screens/register/NextSteps";
import { Workbench } from "@/screens/register/Workbench";

/** A document becomes a dataflow. */
export default function RegisterScreen() {
  const [done, setDone] = useUrlState("registered", "", { push: true });
  return (
    <Page
      title="Register a dataflow"
      lead="A document names translators of installed packages. It is checked while you type; nothing changes until you confirm."
      trail={[{ to: "/", label: "Dataflows" }]}
      cli={["cbp", "validate", "FILE"]}
      wide
    >
      {done === "" ? (
        <Workbench place="document" initial="" fresh onDone={setDone} />
      ) : (
        <NextSteps dataflow={done} onAnother={() => setDone("")} />
      )}
    </Page>
  );
}
