"""The error of a setting that needs packages which are not installed."""

from cbp.errors import OperatingError


class TelemetryPackagesMissingError(OperatingError):
    """A setting needs packages of the extra `cbp[telemetry]`."""

    code = "telemetry_packages_missing"
    retryable = False

    def __init__(self, setting: str, package: str) -> None:
        super().__init__(
            f"{setting} needs the package {package}, which is not installed; "
            "install `cbp[telemetry]`, or unset it",
            setting=setting,
            package=package,
        )
