# Shared by the scripts beside it (sourced, not run): where things are, how a step is announced, ccache.
#
# Everything that is fetched or built once lives under PARE_CACHE:
#   onnx-<version>-<hash>   the onnx C++ library, one folder for each set of flags and compiler
#   venv-<hash>             the Python packages of the tests
# A step that needs the network says so before it starts, and says which step it was when it fails.

PARE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PARE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/pare
PARE_JOBS=${PARE_JOBS:-$(nproc)}

# Objects are shared between clones: paths below base_dir are made relative, the working directory is not
# part of the key, and CMakeLists.txt maps the checkout's path out of debug information.
export CCACHE_BASEDIR=$PARE_ROOT
export CCACHE_NOHASHDIR=true
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-time_macros}

step() { printf '== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# network_step WHAT COMMAND...: runs the command; on failure names the step and says that it needs the network.
network_step() {
  local what=$1
  shift
  step "$what (needs the network)"
  "$@" || die "this step failed: $what. It needs the network; check the connection and the proxy settings, then run the script again."
}
