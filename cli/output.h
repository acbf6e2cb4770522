// A file that a command will write, looked at before hours of work and not after them.
#pragma once

#include <string>
#include <vector>

namespace pare {

// Errors: kUsage when `output` is one of the files that are read (a quantized model would take the place of
// the float one, which cannot be had back); kDevice when its folder is not there.
void check_output(const std::string& output, const std::vector<std::string>& inputs);

}  // namespace pare
