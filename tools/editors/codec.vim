" SPDX-License-Identifier: Apache-2.0
" The codec language in Vim. Copy to ~/.vim/syntax/codec.vim, and put into ~/.vimrc:
"   autocmd BufRead,BufNewFile *.codec setfiletype codec
if exists('b:current_syntax')
  finish
endif

syntax keyword codecSection codec param plan fn claim block phase encode send decode
syntax keyword codecWord if then else and or not is where when once table pairs per slots at most largest in one of int real
syntax keyword codecWord by leader indices values
syntax keyword codecClaim unbiased exact contraction
syntax keyword codecType f32 f64 i32 u32 bool trits places
syntax keyword codecGiven x grad n len
syntax keyword codecFunction abs min max clamp floor ceil round sqrt divide signbit copysign bits from_bits half_bits from_half_bits
syntax keyword codecFunction draw shared_draw stochastic_level sampled_threshold
syntax keyword codecFunction sum mean smallest count any all
syntax keyword codecFunction scan rank sort histogram entry reduce
syntax keyword codecFunction sum_of_blocks mean_of_blocks largest_of_blocks smallest_of_blocks count_of_blocks
syntax match codecType /\<u\(<\w\+>\|\d\+\)\(\[\]\)\?/
syntax match codecNumber /\<0x[0-9a-fA-F.]\+\(p[-+]\?\d\+\)\?\|\<\d\+\(\.\d\+\)\?\(e[-+]\?\d\+\)\?/
syntax region codecText start=/"/ end=/"/ oneline
syntax match codecComment /#.*$/

highlight default link codecSection Statement
highlight default link codecWord Keyword
highlight default link codecClaim PreProc
highlight default link codecType Type
highlight default link codecGiven Identifier
highlight default link codecFunction Function
highlight default link codecNumber Number
highlight default link codecText String
highlight default link codecComment Comment

let b:current_syntax = 'codec'
