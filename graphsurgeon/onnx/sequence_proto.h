// The onnx messages of sequences and optionals, as test data holds them. Included like proto.h.
#pragma once

#include <onnx/onnx-data.pb.h>
