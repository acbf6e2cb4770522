// What convert-precision knows of operators.
#pragma once

#include <cstddef>

#include "engine/ir/graph.h"

namespace pare {

bool only_moves(
    const Node& node);            // gives out elements that it took in, or compares them: follows its inputs
bool is_heavy(const Node& node);  // where the time goes
bool is_control(const Node& node);  // If, Loop, Scan: has subgraphs
bool takes_any(const Node& node);   // takes float32 and float16 alike, without rounding
// Inputs and outputs that are float32 whatever the others are.
bool fixed_input(const Node& node, std::size_t slot);
bool fixed_output(const Node& node, std::size_t slot);

}  // namespace pare
