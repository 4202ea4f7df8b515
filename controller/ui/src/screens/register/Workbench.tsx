import { Box, Button, Drawer, FileButton, Grid, Group, NativeSelect, Stack, Text } from "@mantine/core";
import { useId, useRef, useState } from "react";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { ProblemMessage } from "@/components/ProblemMessage";
import { useDraft } from "@/hooks/drafts";
import { ChangePlan } from "@/screens/register/ChangePlan";
import { Confirm } from "@/screens/register/Confirm";
import { DocumentEditor } from "@/screens/register/DocumentEditor";
import { TEMPLATE, withStage, type Mistake } from "@/screens/register/editing";
import { Library } from "@/screens/register/Library";
import { MistakeList } from "@/screens/register/MistakeList";
import { useDocument, type Change, type Choice } from "@/screens/register/useDocument";
import { WouldBe } from "@/screens/register/WouldBe";

interface WorkbenchProps {
  /** What is edited, as a name that no other document on the page has. */
  place: string;
  initial: string;
  /** Whether one begins with nothing, and may choose what to begin with. */
  fresh: boolean;
  onDone: (dataflow: string) => void;
}

/** A document is edited, judged while it is typed, planned, and confirmed. */
export function Workbench({ place, initial, fresh, onDone }: WorkbenchProps) {
  const session = useSession();
  const [text, setText] = useDraft(place, initial);
  const [choice, setChoice] = useState<Choice>({});
  const [library, setLibrary] = useState(false);
  const [confirming, setConfirming] = useState(false);
  const goTo = useRef<(mistake: Mistake) => void>(() => undefined);
  const checked = useDocument(text, choice);
  const described = useId();
  const edit = (next: string) => {
    setText(next);
    setChoice({});
  };
  const { valid, plan, mistakes, registered } = checked;
  const unchanged = plan !== undefined && !plan.changed;
  const ready = valid !== undefined && mistakes.length === 0 && !checked.pending && !unchanged;
  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 6 }}>
        <Stack gap="sm">
          <Group gap="xs" align="flex-end">
            {fresh && <Beginnings onChoose={edit} />}
            <FileButton accept=".yaml,.yml,.json" onChange={(file) => void file?.text().then(edit)}>
              {(props) => (
                <Button variant="default" leftSection={<Icon name="file" />} {...props}>
                  Open a file
                </Button>
              )}
            </FileButton>
            <Button
              variant="default"
              leftSection={<Icon name="list" />}
              onClick={() => setLibrary(true)}
            >
              Translators
            </Button>
          </Group>
          <DocumentEditor
            text={text}
            onChange={edit}
            mistakes={mistakes}
            describedBy={described}
            onReady={(go) => {
              goTo.current = go;
            }}
          />
          <Box id={described} aria-live="polite">
            <Judgement
              empty={text.trim() === ""}
              pending={checked.pending}
              name={valid?.name}
              registered={registered}
              mistakes={mistakes}
              failure={checked.failure}
              onOpen={(mistake) => goTo.current(mistake)}
            />
          </Box>
          {session.can("admin") ? (
            <Group>
              <Button
                size="md"
                disabled={!ready}
                leftSection={<Icon name="check" />}
                onClick={() => setConfirming(true)}
              >
                {buttonText(valid?.name, registered, plan)}
              </Button>
            </Group>
          ) : (
            <Text size="sm" c="dimmed">
              You may check documents; registering them needs the scope admin.
            </Text>
          )}
        </Stack>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 6 }}>
        <Stack gap="lg">
          {plan !== undefined && <ChangePlan plan={plan} choice={choice} onChoose={setChoice} />}
          {valid !== undefined && <WouldBe valid={valid} />}
        </Stack>
      </Grid.Col>
      <Drawer
        opened={library}
        onClose={() => setLibrary(false)}
        position="right"
        size="lg"
        title="Translators"
      >
        <Library
          onInsert={(translator) => {
            edit(withStage(text, translator));
            setLibrary(false);
          }}
        />
      </Drawer>
      {confirming && valid !== undefined && (
        <Confirm
          text={text}
          valid={valid}
          plan={plan}
          choice={choice}
          registered={registered}
          onClose={() => setConfirming(false)}
          onDone={() => {
            setConfirming(false);
            onDone(valid.name);
          }}
        />
      )}
    </Grid>
  );
}

/** Return what the button does with the document as it is. Pure. */
function buttonText(
  name: string | undefined,
  registered: number | undefined,
  plan: Change | undefined,
): string {
  if (name === undefined) return "Register";
  if (registered === undefined) return `Register ${name}`;
  if (plan !== undefined && !plan.changed) return "Nothing to change";
  return `Change ${name} to version ${plan?.version ?? registered + 1}`;
}

interface JudgementProps {
  empty: boolean;
  pending: boolean;
  name: string | undefined;
  registered: number | undefined;
  mistakes: readonly Mistake[];
  failure: unknown;
  onOpen: (mistake: Mistake) => void;
}

function Judgement({ empty, pending, name, registered, mistakes, failure, onOpen }: JudgementProps) {
  if (empty) {
    return (
      <Text size="sm" c="dimmed">
        Type a document, open a file, or begin with a ready one.
      </Text>
    );
  }
  if (failure !== undefined) return <ProblemMessage error={failure} />;
  if (mistakes.length > 0) return <MistakeList mistakes={mistakes} onOpen={onOpen} />;
  if (pending || name === undefined) {
    return (
      <Text size="sm" c="dimmed">
        Checking
      </Text>
    );
  }
  return (
    <Group gap="xs" wrap="nowrap">
      <Icon name="check" />
      <Text size="sm">
        {registered === undefined
          ? `The document is valid, and no dataflow is named ${name} yet.`
          : `The document is valid. The registered version of ${name} is ${registered}.`}
      </Text>
    </Group>
  );
}

function Beginnings({ onChoose }: { onChoose: (text: string) => void }) {
  const examples = useApi(["examples"], () => client.GET("/api/v1/examples"), { follow: false });
  const ready = (examples.data?.items ?? []).filter((one) => one.problem === "");
  return (
    <NativeSelect
      label="Begin with"
      value=""
      onChange={({ currentTarget: { value } }) => {
        const text = value === "template" ? TEMPLATE : ready.find((one) => one.name === value)?.text;
        if (text !== undefined) onChoose(text);
      }}
      data={[
        { value: "", label: "choose a document" },
        { value: "template", label: "clicks: count URLs, one stage" },
        ...ready.map((one) => ({ value: one.name, label: `${one.name}: ${one.summary}` })),
      ]}
      maw={220}
    />
  );
}
