// Sequences of tensors and optionals; the session runs them itself. Internal to engine/run.
//
//   SequenceEmpty, SequenceConstruct, SequenceAt, SequenceInsert, SequenceErase, SequenceLength,
//   ConcatFromSequence, SplitToSequence, SequenceMap, Optional, OptionalHasElement, OptionalGetElement,
//   and Identity of anything but a tensor
//
// Elements are copied on their way in and shared afterwards: a sequence that grows by one element in each
// iteration of a loop is not copied, only its list. Positions count from the back when negative; one that is
// outside is Error kBadFile. Source: the ONNX operator specification, opset 25.
#pragma once

#include <vector>

#include "engine/run/control_flow.h"

namespace pare {

bool is_sequence_op(const Node& node, const std::vector<Slot>& slots);
void run_sequence_op(ControlCall& call);

}  // namespace pare
