// Requested against realized precision, one row a node.
#pragma once

#include <string>

namespace pare {

struct Realized {
  std::string node;  // its name in the source model
  std::string op;
  std::string requested;  // "int8 x int8", what the Q/DQ around it ask for
  std::string realized;   // "int8 kernel", "float32 (fake-quantized)"
  std::string why;        // reason when they differ, else ""
};

}  // namespace pare
