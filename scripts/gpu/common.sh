# Sourced by the scripts beside it: where programs and CUDA's libraries are.
#
# PARE_GPU_BIN=DIR is where pare is (default build/dev/bin). Without PARE_CUDA_LIBRARIES, the folders of the Python
# packages nvidia-* are taken when python3 has them.
bin=${PARE_GPU_BIN:-build/dev/bin}
if [ -z "${PARE_CUDA_LIBRARIES:-}" ]; then
  PARE_CUDA_LIBRARIES=$(python3 -c 'import nvidia, glob; print(":".join(g for p in nvidia.__path__ for g in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null)
  [ -z "$PARE_CUDA_LIBRARIES" ] || export PARE_CUDA_LIBRARIES
fi
fashion=examples/fashion
pixels=layout=nhwc_to_nchw,scale=1/255,mean=0.2860,std=0.3530
# quantize_fashion NAME FORMAT OUT: a network of examples/fashion, without a search.
quantize_fashion() {
  "$bin/pare" quantize "$fashion/$1.onnx" --format "$2" --method rtn --samples 256 \
    --data "$fashion/fashion_calibration_images.npy:$pixels" -o "$3"
}
