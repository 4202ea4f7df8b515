import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

/** Says what will happen, and does it if one wants that. */
export function AskFirst({
  title,
  action,
  harmless = false,
  onClose,
  onConfirm,
  children,
}: {
  title: string;
  action: string;
  /** Whether nothing that readers see changes. */
  harmless?: boolean;
  onClose: () => void;
  onConfirm: () => void;
  children: ReactNode;
}) {
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ "aria-label": "Close" }}>
      <Stack>
        <Text size="sm" component="div">{children}</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Cancel
          </Button>
          <Button
            {...(harmless ? {} : { color: "red.8" })}
            onClick={() => {
              onClose();
              onConfirm();
            }}
          >
            {action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
