Bin_1J
ÃTñi…ÚˆSh¿