// What `pare inspect` says of checkpoint folders and .safetensors files.
#pragma once

#include <string>

#include "cli/command.h"

namespace pare {

// `list`: every tensor; `verify`: reads all weights and lists those with NaN or infinities, which give exit
// code 3. Returns the exit code. Errors: those of graphsurgeon/checkpoint, an unknown family among them.
int inspect_checkpoint(Context& context, const std::string& path, bool list, bool verify);

}  // namespace pare
