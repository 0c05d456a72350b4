// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ckpt/llmc_layout.hpp"
#include "ckpt/weights_source.hpp"
#include "outboard/error.hpp"

namespace outboard::ckpt {
namespace {

class LlmcSource final : public WeightsSource {
 public:
  LlmcSource(FileSystem& files, const std::string& path) : file_(File::open(files, path)) {
    const std::uint64_t size = file_.size();
    LlmcHeader header{};
    file_.read(std::as_writable_bytes(std::span(header)), 0);
    shape_ = parse_llmc_header(header, path);
    if (size != llmc_file_bytes(shape_)) {
      throw Error(ErrorCode::bad_checkpoint, "'" + path + "' is " + std::to_string(size) +
                                                 " bytes long, and a file of its header has " +
                                                 std::to_string(llmc_file_bytes(shape_)) +
                                                 "; it is cut off or damaged");
    }
    places_ = llmc_tensors(shape_);
    std::ranges::sort(places_, {}, &LlmcTensor::place);
    for (const LlmcTensor& tensor : places_) {
      tensors_.push_back({tensor.name, shape_.dtype, tensor.elems()});
    }
    entries_["heads"] = std::to_string(shape_.heads);
  }

  void read(std::size_t tensor, FloatSink sink) const override {
    const LlmcTensor& place = places_[tensor];
    if (!place.transposed) {
      return read_elements(file_, place.offset, place.elems(), shape_.dtype, sink);
    }
    const std::size_t width = dtype_bytes(shape_.dtype);
    std::vector<std::byte> bytes;
    read_transposed(
        {place.rows, place.cols},
        [&](std::uint64_t row, std::uint64_t col, std::span<float> out) {
          bytes.resize(out.size() * width);
          file_.read(bytes, place.offset + (row * place.cols + col) * width);
          decode(bytes, shape_.dtype, out);
        },
        sink);
  }

 private:
  File file_;
  LlmcShape shape_;
  std::vector<LlmcTensor> places_;  // by tensor
};

}  // namespace

std::unique_ptr<WeightsSource> open_llmc(FileSystem& files, const std::string& path) {
  return std::make_unique<LlmcSource>(files, path);
}

}  // namespace outboard::ckpt
