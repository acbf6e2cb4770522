#include "graphsurgeon/passes/passes.h"

namespace pare {

// Shapes first, since constants follow from them; folding before merging, so that there is less to compare.
std::span<const Pass* const> simplify_passes() {
  static const Pass* const kPasses[] = {&kFoldShapes,     &kFoldConstants,         &kPullInConstants,
                                        &kInlineIf,       &kRemoveIdentity,        &kFoldBatchNormalization,
                                        &kFoldPad,        &kFoldChannelArithmetic, &kMergeAdjacent,
                                        &kMergeConstants, &kMergeEqualNodes,       &kRemoveDeadCode};
  return kPasses;
}

}  // namespace pare
