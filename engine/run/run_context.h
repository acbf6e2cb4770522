// What all graphs of a session share while it runs. Internal to engine/run.
#pragma once

#include "engine/ops/kernel.h"
#include "engine/run/buffer_pool.h"
#include "engine/run/session.h"

namespace pare {

struct RunContext {
  SessionOptions options;
  BufferPool pool;
  Scratch scratch;
  double counted_seconds = 0;  // profile: what nodes have taken so far, each counted once
};

}  // namespace pare
