// The onnx messages. Included by graphsurgeon/onnx only.
#pragma once

#include <onnx/onnx_pb.h>
