// Einsum: y[output labels] = sum over all other labels of the product of the inputs (engine/ir/einsum.h). An
// axis of size 1 is repeated. Floats in double, rounded once; integers wrap. Two float32 inputs whose labels
// make up a matrix product (batch, rows, inner, columns, none twice in a term) are rearranged into one and
// multiplied as MatMul is. Source: ONNX Einsum-12.
#pragma once

namespace pare {

class Registry;
struct Kernel;
Kernel einsum_product_kernel();
void add_einsum_kernels(Registry& registry);  // and the reference

}  // namespace pare
