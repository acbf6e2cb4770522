// Spectra.
//
//   DFT    X[k] = sum_n x[n] exp(-2 pi i k n / N) along `axis` (an input, never the last, which holds the
//          real and imaginary part, or the real one alone). dft_length cuts or pads with zeros. inverse:
//          exp(+...) / N. onesided: k up to N / 2 of real numbers; with inverse, real numbers from those k
//          (the imaginary parts of k = 0 and N / 2 count as 0)
//   STFT   frames of `signal` every frame_step elements, times `window`, then DFT of frame_length
//   MelWeightMatrix  [dft_length / 2 + 1, num_mel_bins]: triangles whose corners lie evenly on the mel
//                    scale, 2595 log10(1 + f / 700), rounded down to bins of the spectrum
//
// In double by the factors of N (a prime N is N^2 work), rounded once. float16, bfloat16, float32, float64.
// Source: ONNX DFT-20, STFT-17, MelWeightMatrix-17, NumPy's fft.
#pragma once

#include <complex>
#include <vector>

namespace pare {

// The sums for all k < x.size(), without the 1 / N of the inverse.
std::vector<std::complex<double>> fourier(const std::vector<std::complex<double>>& x, bool inverse);

class Registry;
void add_signal_references(Registry& registry);

}  // namespace pare
