"""Check the versions that constraints.txt pins for known vulnerabilities.

Runs pip-audit, which must be installed in the environment of this program and asks a service on the network. If the
service cannot be reached or does not know a pinned version, this program fails; pip-audit itself would print "No
known vulnerabilities found" and succeed. Arguments are passed on to pip-audit, for example
``--vulnerability-service osv --osv-url URL`` for a mirror.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
KNOWN, UNANSWERED, INCOMPLETE = 1, 3, 4  # exit codes, besides 0
_UNREACHED = (
    "The service of advisories gave no answer, so nothing is known about the pins. It is asked over the network; "
    'of a mirror: AUDIT_FLAGS="--vulnerability-service osv --osv-url URL" make audit'
)


def judge(output):
    """Exit code and a text, from the JSON that pip-audit prints."""
    try:
        pins = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return UNANSWERED, _UNREACHED
    flawed = [f"{pin['name']} {pin['version']}: {flaw['id']}" for pin in pins for flaw in pin.get("vulns", ())]
    skipped = [pin["name"] for pin in pins if "skip_reason" in pin]
    if flawed:
        return KNOWN, "Update these pins, then run make test-all:\n" + "\n".join(flawed)
    if skipped or not pins:
        text = (
            f"The service of advisories knows nothing of {len(skipped)} of {len(pins)} pins: they are not checked."
        )
        return (UNANSWERED if len(skipped) == len(pins) else INCOMPLETE), text
    return 0, f"No vulnerabilities are known of the {len(pins)} pins."


def main():
    """Ask for all pins, and say the answer by a text and the exit code."""
    options = ["--requirement", str(PINS), "--no-deps", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options, *sys.argv[1:]], capture_output=True, text=True, check=False
    )
    code, text = judge(done.stdout)
    if not done.stdout:
        print(done.stderr[-2000:], file=sys.stderr)
    print(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
