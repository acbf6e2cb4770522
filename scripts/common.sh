# Shared by the scripts beside it (sourced, not run): where things are, and how a step is announced.
#
# What is fetched or built once lives under PARE_CACHE:
#   onnx-<version>-<hash>   the onnx C++ library, one folder for each set of flags and compiler
#   venv-<hash>             the Python packages of the tests
# ccache keeps its own folder; CMakeLists.txt sets it up so that clones share objects.

PARE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PARE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/pare
PARE_JOBS=${PARE_JOBS:-$(nproc)}

step() { printf '== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# network_step WHAT COMMAND...: runs the command; says that it needs the network, and which step it was if it fails.
network_step() {
  local what=$1
  shift
  step "$what (needs the network)"
  "$@" || die "this step failed: $what. It needs the network: check the connection and the proxy settings, then run the script again."
}
