-- What any script costs: the lower end of every scale.
return 1
