// SPDX-License-Identifier: Apache-2.0
/// Names and numbers of the checkpoint format, which docs/checkpoint_format.md describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outboard::ckpt {

inline constexpr std::uint64_t kFormatVersion = 1;
inline constexpr std::string_view kFormatName = "outboard-checkpoint";
inline constexpr std::string_view kManifestName = "manifest.json";
/// Folders in the one that checkpoints are saved into: complete, being written, being removed.
inline constexpr std::string_view kSavedPrefix = "save-";
inline constexpr std::string_view kSavingPrefix = ".saving-";
inline constexpr std::string_view kRemovingPrefix = ".removing-";
/// Where the tensors of a file begin is a multiple of this.
inline constexpr std::uint64_t kDataAlign = 4096;

// Beyond these a file is refused, before memory is asked for.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as safetensors' own readers
inline constexpr std::size_t kMaxJsonDepth = 8;
inline constexpr std::uint64_t kMaxElems = std::uint64_t{1} << 48;
inline constexpr std::size_t kMaxFiles = 1'000'000;
/// A save has no more: a reader holds them all open, and a process has 1,024 files by default.
inline constexpr std::size_t kMaxSavedFiles = 512;

/// What is read and written in one go where it passes through a buffer.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace outboard::ckpt
