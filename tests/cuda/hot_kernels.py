"""What the machine code of hot kernels must have, on every GPU of SASS_TARGETS. These are facts of
today's code, which a change may improve but not worsen."""
import typing

SASS_TARGETS = ("80", "90", "100")


class Expected(typing.NamedTuple):
    file: str  # of runtime/cuda, without its folder and ending
    kernel: str  # a pattern for the whole name, as machine_code.readable() gives it
    loads: int  # at least so many of 16 bytes
    stores: int  # at least so many of 16 bytes
    narrow_stores: typing.Optional[int] = None  # at most so many to global memory; None: any number
    tensor: int = 0  # at least so many instructions of tensor cores


# Narrow stores are statistics, bytes of masks, or the elements after the last vector. A vector that
# is stored in pieces shows as fewer wide stores.
HOT = (
    Expected("activation", r"flat_kernel<8, (For|Back)ward<.*, BFloat16> >", 1, 1),
    Expected("add", r"flat_kernel<8, Sums<BFloat16> >", 2, 1),
    Expected("attention", r"\w+_kernel<Split<16, 4>, (KeepAll|DropSome).*>", 0, 0),
    Expected("attention_padding", r"clear_kernel", 0, 1),
    Expected("batch_norm", r"forward_kernel<BFloat16, \w+, 8>", 10, 3, 3),
    Expected("batch_norm", r"forward_kernel<float, float, 4>", 10, 3, 0),
    Expected("batch_norm", r"statistics_kernel<BFloat16, 8>", 6, 4, 0),
    Expected("batch_norm_backward", r"input_gradient_kernel<BFloat16, 8>", 20, 3, 0),
    Expected("batch_norm_backward", r"gradient_sums_kernel<BFloat16, 8>", 16, 7, 0),
    Expected("column_sum", r"column_sum_kernel<BFloat16, 8>", 4, 2, 0),
    Expected("column_sum", r"column_sum_kernel<float, 4>", 4, 1, 0),
    Expected("dropout", r"flat_kernel<8, Drop<BFloat16> >", 1, 1, 1),
    Expected("flash_attention", r"flash_kernel<Tiling<(BFloat16|float), .*>", 0, 1, 3, 64),
    Expected("flash_attention_backward", r"flash_query_kernel<Tiling<BFloat16, 64,.*>", 4, 1, 3, 48),
    Expected("flash_attention_backward", r"flash_query_kernel<Tiling<BFloat16, 128,.*>", 4, 1, 3, 96),
    Expected("flash_attention_backward", r"flash_query_kernel<Tiling<float, .*>", 4, 1, 3, 96),
    Expected("flash_attention_backward", r"flash_key_kernel<Tiling<BFloat16, 64,.*>", 0, 2, 2, 64),
    Expected("flash_attention_backward", r"flash_key_kernel<Tiling<BFloat16, 128,.*>", 0, 2, 2, 128),
    Expected("flash_attention_backward", r"flash_key_kernel<Tiling<float, .*>", 0, 1, 2, 128),
    Expected("gated_activation", r"pixel_kernel<8, Forward<.*, BFloat16> >", 2, 1, 0),
    Expected("gated_activation", r"pixel_kernel<8, Backward<.*, BFloat16> >", 3, 2, 0),
    Expected("gated_activation", r"pixel_kernel<4, Backward<.*, float> >", 3, 2, 0),
    Expected("optimizers", r"update_kernel<\w+, float>", 20, 15),
    Expected("pooling", r"pixel_kernel<8, (Avg|GlobalAvg).*<BFloat16> >", 1, 1, 0),
    Expected("pooling", r"pixel_kernel<8, Max(For|Back)ward<BFloat16> >", 1, 1, 1),
    Expected("qk_norm", r"pixel_kernel<8, Copy<BFloat16> >", 1, 1, 0),
    Expected("rotary", r"pixel_kernel<8, Rotate<BFloat16> >", 3, 2, 0),
    Expected("row_norm", r"forward_kernel<true, BFloat16, 8, 4, \d+>", 8, 4, 2),
    Expected("row_norm", r"forward_kernel<false, BFloat16, 8, 1, 32>", 2, 1, 1),
    Expected("row_norm", r"forward_kernel<false, BFloat16, 8, 4, \d+>", 8, 4, 1),
    Expected("row_norm", r"backward_kernel<true, BFloat16, 8, 4, \d+>", 20, 4, 56),
    Expected("row_norm", r"backward_kernel<false, BFloat16, 8, 1, 32>", 5, 1, 3),
    Expected("row_norm", r"backward_kernel<false, BFloat16, 8, 4, \d+>", 20, 4, 56),
    Expected("softmax_cross_entropy", r"\w+_tile_kernel<BFloat16, true, \w+>", 2, 1),
    Expected("softmax_cross_entropy", r"\w+_kernel<BFloat16, 1024, true, false>", 9, 8),
    Expected("softmax_cross_entropy", r"\w+_kernel<float, 1024, true, false>", 6, 5),
    Expected("tree_sum", r"flat_kernel<4, TreeSum<float, float, \d+> >", 1, 1),
)
